"""WebShop (Yao et al. 2022) in text mode: its pages, actions and reward over product files of its format, or
over generated ones.
"""
