"""Count-action modules: the language, its emitters, register buses. Nothing here yet."""
