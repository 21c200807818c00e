"""Studies with tailored: reproduction, benchmark, theory, earlier methods. Not part of the
wheel.
"""
