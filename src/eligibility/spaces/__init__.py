"""What spaces of actions and observations hold, whatever is done with them: no torch below here."""
