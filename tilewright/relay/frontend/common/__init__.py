"""Common parts of importers: types of intermediate expressions, and layers that several frameworks share."""
