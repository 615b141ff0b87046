"""Operations after one that ended too early or is not wanted any more: resume and rollback, and what they read."""
