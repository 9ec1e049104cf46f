"""What the Makefile's targets run: set-up, the headless run, the style rules, the bench."""
