"""Admission: manifest in, manifest or field errors out. Pure."""
