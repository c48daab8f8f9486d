"""What importers share: types on the way, and layers that more than one framework spells out."""
