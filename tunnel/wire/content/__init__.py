"""What the content blocks of a prompt hold besides text: images, and files that go along with it."""
