"""What a command prints: tables for people or JSON, and how numbers read."""
