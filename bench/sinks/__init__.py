"""Each sink beside the bare bulk loader of its system."""
