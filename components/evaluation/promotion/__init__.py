"""The promotion gate: does the challenger replace the champion?"""
