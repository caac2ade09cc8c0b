"""A model as one HTML file: its parts in JavaScript, its weights, and a page that uses them."""
