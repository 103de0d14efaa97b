"""`ccb serve`: start the web server, print links, and end after a signal or when nobody has looked for a while."""

from __future__ import annotations

import asyncio
import contextlib
import io
import ipaddress
import socket
import ssl
import sys
from collections.abc import Mapping

from yarl import URL

from ccb.tunnel.errors import UsageError

from ..command_line.arguments import Arguments
from ..command_line.exit_codes import ExitCode
from ..command_line.option_values import shortened
from ..terminal.console import print_line, say
from ..terminal.signals import Interrupts
from .browser_server import BrowserServer, page_files
from .pty_process import PtyProcess

_IDLE_MINUTES = 30.0
_OF_THIS_TERMINAL = (
    *("TMUX", "TMUX_PANE", "STY", "WINDOWID", "VTE_VERSION", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "TERM_SESSION_ID"),
    *("KITTY_WINDOW_ID", "WEZTERM_PANE", "ITERM_SESSION_ID", "LC_TERMINAL", "WT_SESSION", "COLUMNS", "LINES"),
    *("DISPLAY", "WAYLAND_DISPLAY", "SSH_ASKPASS", "SSH_CLIENT", "SSH_CONNECTION"),
)
"""Variables that tell of the terminal and the screen here, where the person is not."""


async def run_serve(arguments: Arguments, environ: Mapping[str, str]) -> ExitCode:
    """Raises CcbError."""
    options, pages = arguments.host_command, page_files()
    host, port = _address(options.listen or "127.0.0.1")
    tls = _tls(options.tls_cert, options.tls_key)
    listener = _listener(host, port, encrypted=tls is not None)
    address = URL.build(scheme="https" if tls else "http", host=host, port=listener.getsockname()[1])
    idle = _IDLE_MINUTES if options.idle is None else options.idle
    command = [sys.executable, "-P", "-m", "ccb", *arguments.rest]  # -P: no modules of this directory
    inside = {name: value for name, value in environ.items() if name not in _OF_THIS_TERMINAL}
    inside |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    with Interrupts() as signals, contextlib.suppress(TimeoutError):
        async with asyncio.timeout(None) as end:

            def watched(by_somebody: bool) -> None:
                when = asyncio.get_running_loop().time() + idle * 60
                end.reschedule(None if by_somebody or not idle else when)

            program = PtyProcess(command, inside, watched)
            server = BrowserServer(program, address, tls, pages)
            try:
                async with server.listening(listener):
                    _offer_links(server, drawn=tls is not None)
                    watched(False)
                    await asyncio.wait([signals.first])
            finally:
                await program.close()
            return signals.first.result()
    say(f"ccb: no browser has looked for {idle:g} minutes; the sessions stay on their hosts")
    return ExitCode.OK


def _offer_links(server: BrowserServer, *, drawn: bool) -> None:
    """Print a link now, and another one for each Enter in the terminal; `drawn`: for a phone, too."""

    def show() -> None:
        link = server.new_link()
        print_line(link)
        if drawn and sys.stdout.isatty():
            import segno

            code = io.StringIO()
            segno.make(link, micro=False).terminal(code, border=2, compact=True)
            print_line(*code.getvalue().splitlines())

    def pressed() -> None:
        if sys.stdin.readline():
            show()
        else:
            loop.remove_reader(sys.stdin)

    loop = asyncio.get_running_loop()
    show()
    if sys.stdin.isatty():
        say("Enter makes a link for another browser; Ctrl+C ends.")
        loop.add_reader(sys.stdin, pressed)


def _address(text: str) -> tuple[str, int]:
    """Parse ADDRESS, ADDRESS:PORT or [IPv6]:PORT; port 0 stands for none."""
    try:
        url = URL(f"//{text}")
        host, port = url.host or "", url.explicit_port or 0
    except ValueError:
        host, port = "", 0
    wrong = not host or str(url.relative()) not in ("", "/") or url.user is not None
    with contextlib.suppress(ValueError):
        wrong = wrong or ipaddress.ip_address(host).is_unspecified
    if wrong:
        raise UsageError(
            f"--listen {shortened(text)} is no address that a browser can call",
            do="Write ADDRESS or ADDRESS:PORT as the browser will: 192.168.1.5:8443, laptop.example.org.",
        )
    return host, port


def _listener(host: str, port: int, *, encrypted: bool) -> socket.socket:
    """Listen at the address of a host: at one beyond this machine only if it is `encrypted`."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        if not encrypted and not ipaddress.ip_address(address[0]).is_loopback:
            raise UsageError(
                f"ccb serve listens beyond this machine ({host}) only with TLS",
                do="Give --tls-cert and --tls-key, or leave out --listen.",
            )
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise UsageError(f"ccb serve cannot listen on {host} port {port}: {why}", do="Give another --listen.") from None


def _tls(certificate: str | None, key: str | None) -> ssl.SSLContext | None:
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise UsageError("--tls-cert and --tls-key go together", do="Give both.")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        tls.load_cert_chain(certificate, key)
    except OSError as error:  # also an SSLError
        raise UsageError(
            "the certificate of ccb serve cannot be used",
            evidence=f"{certificate}, {key}: {error}",
            do="Give files in PEM that belong together.",
        ) from None
    return tls
