"""What a model behind a provider can do: what its list says, what the person says, and what is known of its family."""

from __future__ import annotations

from dataclasses import replace

from ..wire.dataclass import dataclass
from ..wire.model_facts import LEVELS, ModelFacts, claude_facts
from .costs import known_prices, with_long_price
from .model_lists import Facts

_EFFORTS = ("low", "medium", "high")
_SIZES = ("window", "max_output")
_PRICES = ("input_price", "output_price", "cache_read_price")
_ABILITIES = ("tools", "images", "documents", "thinking")


@dataclass(frozen=True)
class ModelTraits:
    """`window` and `max_output` are in tokens, 0 if they are not known. `efforts` are the levels of effort that the
    model takes. Prices are US dollars for a million tokens, None if they are not known."""

    window: int = 0
    max_output: int = 0
    tools: bool = True
    images: bool = True
    documents: bool = False
    thinking: bool = False
    efforts: tuple[str, ...] = ()
    input_price: float | None = None
    output_price: float | None = None
    cache_read_price: float | None = None

    def facts(self, model: str) -> ModelFacts:
        """Return what both ends of a session need to know of the model with this name."""
        known = claude_facts(model)  # whoever serves it
        found = ModelFacts(self.window or known.context_window, self.max_output or known.max_output)
        if self.input_price is None:
            priced = replace(known, context_window=found.context_window, max_output=found.max_output)
        else:
            read = self.input_price if self.cache_read_price is None else self.cache_read_price
            priced = replace(
                found,
                input_price=self.input_price,
                output_price=self.output_price or 0.0,
                read_share=read / self.input_price if self.input_price else 1.0,
                write_share=known.write_share if known.input_price else 1.0,
                free=self.input_price == 0 and not self.output_price,
            )
        return with_long_price(model, priced)


_REASONS = ModelTraits(thinking=True, efforts=_EFFORTS)
_GPT_5 = replace(_REASONS, window=400_000, max_output=128_000, efforts=("minimal", *_EFFORTS), documents=True)
_GPT_5_1 = replace(_GPT_5, efforts=("none", *_EFFORTS, "xhigh"))
_O = replace(_REASONS, window=200_000, max_output=100_000, documents=True)
_GEMINI = ModelTraits(1_000_000, 65_536, thinking=True, efforts=_EFFORTS, documents=True)
_DEEPSEEK = ModelTraits(128_000, 8_192, images=False, thinking=True, efforts=("low", "high", "max"))
_GROK_4 = ModelTraits(500_000, 64_000, thinking=True)
_GPT_5_LONG = replace(_GPT_5_1, window=1_050_000)

_DEEPSEEK_FLASH = ("deepseek-flash", "deepseek-v4-flash")

_FAMILIES: tuple[tuple[str, ModelTraits], ...] = (  # the first prefix counts; what a provider's list says outranks it
    ("gpt-5-chat", ModelTraits(128_000, 16_384, documents=True)),
    *((f"gpt-5.4-{small}", _GPT_5_1) for small in ("mini", "nano")),
    *((f"gpt-5.{minor}", _GPT_5_LONG) for minor in (4, 5, 6)),
    ("gpt-5.", _GPT_5_1),
    ("gpt-5", _GPT_5),
    ("gpt-4.1", ModelTraits(1_000_000, 32_768, documents=True)),
    ("gpt-4o", ModelTraits(128_000, 16_384, documents=True)),
    ("gpt-oss", ModelTraits(131_072, 32_768, images=False, thinking=True, efforts=_EFFORTS)),
    ("o1", _O),
    ("o3", _O),
    ("o4", _O),
    ("gemini-", _GEMINI),
    ("grok-code", ModelTraits(256_000, 32_768, images=False, thinking=True)),
    ("grok-3-mini", replace(_REASONS, window=131_072, max_output=32_768, images=False, efforts=("low", "high"))),
    ("grok-3", ModelTraits(131_072, 32_768, images=False)),
    *((f"grok-4.{minor}", replace(_GROK_4, window=1_000_000)) for minor in (20, 3)),
    *((f"grok-4.{minor}", _GROK_4) for minor in (5, 6, 7)),
    ("grok-", ModelTraits(256_000, 32_768, thinking=True)),
    ("deepseek-reasoner", replace(_DEEPSEEK, max_output=65_536)),
    ("deepseek-v4-pro", replace(_DEEPSEEK, window=1_000_000, max_output=393_216)),
    *((name, replace(_DEEPSEEK, window=1_000_000, max_output=393_216, images=True)) for name in _DEEPSEEK_FLASH),
    ("deepseek-", _DEEPSEEK),
)


def traits_of(model: str, default: ModelTraits, listed: Facts, own: Facts) -> ModelTraits:
    """Return the traits of a model. The strongest word has the person (`own`), then that of its list (`listed`), then
    what ccb knows of the family, then `default`."""
    name = model.rsplit("/", 1)[-1].lower()  # a vendor's name in front does not count
    known = next((traits for prefix, traits in _FAMILIES if name.startswith(prefix)), default)
    said = {**known_prices(model), **_checked(listed), **own}
    return replace(known, **said)  # type: ignore[arg-type]  # `_checked` and pydantic have checked names and types


def _checked(facts: Facts) -> Facts:
    """Return those facts of a list that are what `ModelTraits` has: a list comes from outside, or from a file."""
    made = {name: value for name, value in facts.items() if _is_one(name, value)}
    efforts = facts.get("efforts")
    if isinstance(efforts, (list, tuple)):
        made["efforts"] = tuple(each for each in LEVELS if each in efforts)
    return made


def _is_one(name: str, value: object) -> bool:
    if name in _SIZES:
        return type(value) is int and value > 0
    if name in _PRICES:
        return type(value) in (int, float)
    return name in _ABILITIES and type(value) is bool
