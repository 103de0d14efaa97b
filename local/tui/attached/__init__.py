"""One attached session on the screen. It is imported while the connection is made, behind the first frame."""
