"""Operations on earlier runs: resume, compare, lineage, rollback, and use of their data."""
