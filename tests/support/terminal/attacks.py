"""Texts that try to drive a terminal: those that are known, and what hypothesis makes of their parts."""

from __future__ import annotations

from hypothesis import strategies as st

ATTACKS = (
    "\x1b]52;c;ZXZpbA==\x07",  # the clipboard
    "\x1b]0;owned\x07\x1b]2;owned\x1b\\\x1b[21t",  # a title, and its report as typed input
    "\x1b]8;;https://evil.example/\x1b\\https://good.example/\x1b]8;;\x1b\\",
    "\x1b]50;#owned\x07\x1b]4;1;?\x07\x1b]11;?\x07",  # fonts and colours, with a report
    "\x1b]9;4;1;50\x07\x1b]777;notify;a;b\x07\x1b]1337;File=inline=1:QUJD\x07\x1b]133;A\x07",
    "\x1b[6n\x1b[c\x1b[>q\x1b[5n\x05\x1bZ",  # the terminal types an answer
    '\x1bP$q"p\x1b\\\x1bP+q544e\x1b\\\x1bP1;2|17/17;\x1b\\',  # DCS: reports, and keys that type something else
    "\x1b_Ga=T,f=24,s=1,v=1;AAAA\x1b\\\x1b^pm\x1b\\\x1bXsos\x1b\\",  # kitty graphics, PM, SOS
    "\U0010eeee\u0305\u0305\u0305 \U0010eeee\u0305\u030d\u0305",  # a part of an image that ccb has shown
    "\x1bPtmux;\x1b\x1b]52;c;ZXZpbA==\x07\x1b\\\x1bP=1s\x1b\\",  # through tmux
    "\x1b[2J\x1b[H\x1b[3J\x1b[999;1H\x1b[1A\x1b[5M\x1b[?1049l\x1bc\x1b[!p",  # another screen
    "\x1b[8mhidden\x1b[0m\x1b[?25l\x1b[?5h\x1b[20h\x1b[4h\x1b[?7l\x1b[1;2r\x1b(0lqk\x1b)0\x0e\x0f\x1bn\x1b#8",
    "\x9b2J\x9d52;c;ZXZpbA==\x9c\x90q\x9c\x9fG\x9c\x98\x9e\x84\x85\x8d\x8e\x8f\x9a",  # the same as C1
    "rm -rf /\r# harmless\x08\x08\x08\x7f\x0b\x0c\x00\x07",
    "\u202etxt.exe\u202c\u2066a\u2069\u2067b\u2068c\u200e\u200f\u061c\u202a\u202b\u202d",
    "a\u2028b\u2029c\ufeff\u200b\u2060\u00ad\U000e0041\U000e007f",
    "Z" + "\u0334\u0301\u0335\u20dd" * 100 + "o",  # a storm of marks
    "\ud83d\udc00\udfff lone",
    "\x1b" * 300 + "[31m" * 50,
    "\x1b[" + "1;" * 5_000 + "m",
    "x" * 20_000,
    "[red]markup[/red] [@click=app.quit]click[/] [link=https://evil.example/]x[/link]",
    "[good](https://evil.example/) <https://evil.example/> ![img](https://evil.example/i.png)",
    "\x1b\x1b]5\x1b]2;c;eA==\x07\x1b[\x1b[2J",  # what is left after one pass must not be another sequence
    "\x1b]8;id=1;file:///etc/passwd\x07x\x1b]8;;\x07\x1b[<0;1;1M\x1b[200~typed\x1b[201~\x1b[I",
    b"\xff\xfe\xc0\x9b2J\xed\xa0\x80\xf4\x90\x80\x80".decode("utf-8", "surrogateescape"),
)

_PARTS = (
    *"\x1b\x9b\x9d\x90\x98\x9e\x9f\x9c\x07\\[]P_^X;?>!$\"'#()m\x00\x05\x08\x0e\r\n\t |*`-",
    "\x1b[", "\x1b]", "\x1bP", "\x1b_", "\x1b\\", "52;c;", "8;;https://evil/", "0;", "2;", "6n", "2J", "31m", "?1049l",
    "\u202e", "\u2066", "\u2069", "\u200f", "\u2028", "\ufeff", "\u0301" * 20, "\u200d", "\ufe0f", "\U0001f600", "漢",
    "```\n", "# ", "- ", "| a | b |\n|---|---|\n", "](", "[/", "@click=", "\ud800", "word", "é",
)  # fmt: skip

ATTACK_TEXTS = st.one_of(
    st.lists(st.sampled_from(_PARTS), min_size=1, max_size=40).map("".join),
    st.text(st.characters(exclude_categories=()), min_size=1, max_size=60),
    st.binary(min_size=1, max_size=60).map(lambda data: data.decode("utf-8", "surrogateescape")),
)
"""Texts made of parts of attacks, of any characters, and of bytes that are no UTF-8."""
