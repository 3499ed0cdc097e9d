"""``python -m eligibility`` is the command line: also what ``torchrun -m eligibility`` starts."""

from eligibility.cli.app import main

if __name__ == "__main__":
    main()
