"""What follows a change that ended too early or is not wanted any more: resume, rollback, confirmation, stop."""
