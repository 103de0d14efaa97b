"""The questions that wait for the person, and the forms they are asked with."""
