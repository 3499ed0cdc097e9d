"""The scripts are programs of users that the tests run, and no test modules."""

collect_ignore = ["scripts"]
