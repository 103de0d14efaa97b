"""Images: decoded within limits by Pillow, if it is installed, and scaled or drawn."""
