"""Shoppers: the scripted policies that produce WebShop's offline data."""
