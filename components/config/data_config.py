"""The config section `data`: the offline trajectories that are recorded or imported."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from components.config.reading.config_values import Seed
from components.config.reading.section import Section

_TOKENS = (
    r"sk-[A-Za-z0-9_-]{16,}",  # OpenAI, Anthropic
    r"A(?:KIA|SIA)[0-9A-Z]{16}\b",  # AWS
    r"gh[pousr]_[A-Za-z0-9]{30,}",
    r"github_pat_[A-Za-z0-9_]{20,}",
    r"hf_[A-Za-z0-9]{20,}",  # Hugging Face
    r"AIza[A-Za-z0-9_-]{30,}",  # Google
    r"xox[a-z]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}",  # Slack
    r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,}",  # Stripe
    r"glpat-[A-Za-z0-9_-]{20,}",  # GitLab
    r"npm_[A-Za-z0-9]{30,}",
    r"pypi-AgE[A-Za-z0-9_-]{16,}",
    r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",  # SendGrid
)
_NAMES = (
    r"(?:api|access|secret|private|signing|encryption|account)[_-]?key",
    r"passw(?:or)?d|passphrase|secret",
    r"(?:access|refresh|auth|api|bot|session|id)[_-]?token|(?-i:[A-Z]_TOKEN)",
)
"""What the values of settings are called that are secrets, in names such as DB_PASSWORD, too."""
_IS = r"""\\*["']?\s*[=:]\s*\\*["']?"""
"""Between a name and its value; the quotes may be those of JSON in JSON."""
_QUERY_NAMES = (
    r"(?:access|auth|refresh|id|session|x-amz-security)?[_-]?(?:token|jwt)",
    r"sig|(?:x-amz-|x-goog-)?signature|api[_-]?key|passw(?:or)?d|pwd",
)
"""Parameters of URLs whose values are secrets; in other text `token=` may be anything."""
_OPTIONS = r"(?:(?:access|auth|api|refresh|client|db|admin|user)-)?(?:passw(?:or)?d|token|secret|api-?key)"
_NO_VALUES = (
    r"options?|flags?|arguments?|parameters?|switch|values?|with|from|instead|when|must|should|which|that|"
    r"requires?|required|needs?|into|then|prompts?"
)
"""Words that stand behind the name of an option in a sentence."""
_PRIVATE_KEY = r"[A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
SECRETS = [
    rf"(?s)-----BEGIN {_PRIVATE_KEY}.*?(?:-----END {_PRIVATE_KEY}|\Z)",
    r"(?:^|(?<=[^A-Za-z0-9_-]))eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]+)*",
    rf"(?:^|(?<=[^A-Za-z0-9]))(?:{'|'.join(_TOKENS)})",
    r"(?i)\bbearer\s+([A-Za-z0-9._~+/-]{16,}=*)",
    rf"(?i:\bauthorization{_IS}(?:basic|digest|token)\s+)"
    r"((?=\S{0,200}?(?:[0-9+/=]|[a-z][A-Z]))[A-Za-z0-9._+/-]{6,}={0,2})",
    r"""://[^\s/:@"'<>]{0,100}:([^\s/"'<>\[]{1,200})@""",
    rf"(?i)[?&](?:amp;)?(?:{'|'.join(_QUERY_NAMES)})=" + r"""([^\s&"'<>\[\]\\#]{6,})""",
    rf"(?i)(?<![\w-])--{_OPTIONS}" + r"""(?:\\*["'],\s*\\*["']|[ \t]*=[ \t]*|[ \t]+)\\*["']?"""
    rf"((?!(?:{_NO_VALUES})\b)(?!(?-i:[A-Z_]+)(?:[\s\]|,.]|$))" + r"""[^\s"'<>$\[\]\\=-][^\s"'\\]{3,})""",
    r"""(?i)\bcurl\b[^\n|;]{0,300}?[\s"'](?:-u\s*|--(?:proxy-)?user(?:\s+|=))["']?"""
    r"""[^\s:"']{1,100}:([^\s"'\[]{1,200})""",
    rf"(?i)(?:{'|'.join(_NAMES)}){_IS}" + r"""((?:[^\s"',}\[\\]|\\(?![\\"'])){6,})""",
]
"""Built-in patterns: private keys, JSON web tokens, keys of common services, headers, passwords and tokens in
URLs and command lines, and what is called a key, a password, a secret or a token. Each takes linear time."""
NOT_BUILT_IN = "none"
"""Entry of `data.mask` that switches the built-in patterns off."""


class DataConfig(Section):
    """The offline trajectories that `dreamgym collect` records and `dreamgym import` takes from logs."""

    max_text_chars: ClassVar[int] = 4000
    """Longest text that validation accepts, in characters."""

    train_tasks: int = Field(300, ge=1, description="Training tasks played for the offline data.")
    fidelity_tasks: int = Field(
        40, ge=1, description="Further tasks of the training split, held out to measure fidelity."
    )
    fidelity_worlds: int = Field(
        20,
        ge=0,
        description="Tasks of the test split to measure fidelity in worlds (floor plans, sites) without "
        "training tasks.",
    )
    expert: int = Field(1, ge=0, description="Expert episodes per task.")
    noisy: int = Field(1, ge=0, description="Episodes per task of an expert that makes mistakes.")
    near_miss: int = Field(
        2, ge=0, description="Episodes per task with many near misses, which train the dream to refuse."
    )
    random: int = Field(
        1, ge=0, description="Episodes per task of a random policy, with impossible and malformed actions."
    )
    seed: Seed = Field(
        0, description="Seed of the behaviours; data that is recorded again has the same DVC hash."
    )
    families: list[str] = Field(
        default_factory=list,
        description="Task families that models and policies train on (transfer to the others); empty: all.",
    )
    mask: list[str] = Field(
        default_factory=list,
        description="Regular expressions of secrets in imported logs, beside the built-in ones: what they "
        "find, or their group, is replaced by [masked]. The entry none switches the built-in ones off.",
    )
    quarantine_share: float = Field(
        0.02, ge=0, le=1, description="Share of invalid rows above which validation stops the run."
    )

    @property
    def secret_patterns(self) -> list[str]:
        """The built-in patterns of secrets, unless `mask` has the entry `none`, then those of `mask`."""
        own = [pattern for pattern in self.mask if pattern != NOT_BUILT_IN]
        return own if NOT_BUILT_IN in self.mask else [*SECRETS, *own]
