"""WebShop's simulator: products, search, pages, sessions and the graded reward."""
