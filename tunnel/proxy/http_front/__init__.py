"""HTTP on a unix socket: `connection` speaks HTTP, `front` hands what came to the auth proxy."""
