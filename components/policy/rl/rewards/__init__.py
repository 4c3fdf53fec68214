"""What an episode is worth: its outcome, ranks within outcomes, a learnt model, or the policy as judge."""
