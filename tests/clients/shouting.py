"""The task that every agent gets: make greet.py shout. Its model's turns are scripted."""

BEFORE = 'return "Hello, " + name'
AFTER = 'return "HELLO, " + name.upper()'
TASK = "Change greet.py so that the greeting is in capital letters."
DONE = "Done: the greeting shouts now."


def assert_shouts(repository):
    text = (repository / "greet.py").read_text(encoding="utf-8")
    assert text == f"def greet(name):\n    {AFTER}\n", text
