"""The command line: one file a verb, `app` puts them together."""
