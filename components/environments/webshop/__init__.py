"""WebShop (Yao et al. 2022) in text mode: its pages, actions and reward.

The products come from files of its format, or are generated.
"""
