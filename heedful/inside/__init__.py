"""Looking inside: pictures of attention, costs by arithmetic, and a doctor for models."""
