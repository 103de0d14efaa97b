"""What holds a hostile worker back: the nonce of a connection, the pace of calls, what a request may ask for, and the
switch that ends all calls."""
