"""The proof that another library's model is the same model: comparison and certificate."""
