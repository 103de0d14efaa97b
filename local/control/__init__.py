"""How one ccb of this machine speaks to another: each that drives a session has a socket, which only this user can
open. `ccb proxy` asks over it what runs, and takes the right to call models back."""
