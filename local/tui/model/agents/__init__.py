"""What the sub-agents of a session do, for the rows under the calls that started them."""
