"""What holds a hostile worker back: the nonce of a connection, the pace and the cost of calls, what a request may ask
for, and the switch that ends all calls."""
