"""What comes of a small shell script: how long it runs, how it exits, which files it leaves.

Enough of ``sh`` for the commands with which tests of workloads say how their containers end:
lists, ``if``, ``test``, ``expr``, arithmetic, variables, files that are written, read and removed.
Nothing is executed, and a script with anything else in it has no outcome: ``NotPlayed``.
"""

import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Final

import msgspec

_MOST_STEPS: Final = 1000
_LONGEST_TEXT: Final = 10_000
_MOST_FILES: Final = 100
_TOKEN: Final = re.compile(r"[ \t\r]+|\\\n|(\n|;|&&|\|\|)|#[^\n]*")
_NAME: Final = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_ARITHMETIC: Final = re.compile(r"\s*(-?\d+)\s*(?:([-+*/%])\s*(-?\d+)\s*)?")
_ENDS: Final = frozenset({"then", "elif", "else", "fi"})
_SEPARATORS: Final = frozenset({"\n", ";", "&&", "||"})
_BETWEEN: Final = " \t\r\n;"
"""What ends a word; to a shell other spaces, such as U+00A0, are letters."""
_SUFFIXES: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class NotPlayed(Exception):
    """A script has something in it that cannot be played."""


class Outcome(msgspec.Struct, frozen=True):
    """What came of a script.

    ``files`` are those that there are at the end, with what is in them, and ``output`` is what it
    wrote elsewhere. ``history`` tells from which second on which files there were.
    """

    seconds: float
    exit_code: int
    files: Mapping[str, str] = {}
    output: str = ""
    history: tuple[tuple[float, Mapping[str, str]], ...] = ()


class _Exit(Exception):
    """The script ends here."""


def play(
    text: str, variables: Mapping[str, str], files: Mapping[str, str] | None = None
) -> Outcome:
    """Return what comes of a script that begins with these variables, and with these files.

    ``files``: ``None`` where nobody knows what is in them.

    Raises:
        NotPlayed: there is something in it that cannot be told.
    """
    if len(text) > _LONGEST_TEXT:
        raise NotPlayed
    try:
        script = _Script(_tokens(text), variables, files)
        with suppress(_Exit):
            script.lists(frozenset())
    except (ValueError, LookupError, RecursionError, ZeroDivisionError) as error:
        raise NotPlayed from error
    return script.outcome()


def run(words: list[str], variables: Mapping[str, str], files: Mapping[str, str] | None) -> Outcome:
    """Return what comes of one command, given as words that mean what they say.

    Raises:
        NotPlayed: it is none that can be played.
    """
    script = _Script([], variables, files)
    try:
        with suppress(_Exit):
            script.command(words)
    except (ValueError, LookupError) as error:
        raise NotPlayed from error
    return script.outcome()


def _tokens(text: str) -> list[str]:
    """Return separators and words, as they are written, with quotes and ``$( )``."""
    found, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match:
            if match.group(1):
                found.append(match.group(1))
            at = match.end()
            continue
        end = _end_of_word(text, at)
        found.append(text[at:end])
        at = end
    return found


def _end_of_word(text: str, at: int) -> int:
    while at < len(text) and text[at] not in _BETWEEN:
        if text.startswith(("&&", "||"), at):
            break
        if text[at] in "\"'":
            at = text.index(text[at], at + 1) + 1
        elif text.startswith("$(", at):
            at = _end_of_substitution(text, at)
        else:
            at += 1
    return at


def _end_of_substitution(text: str, at: int) -> int:
    """Return the place behind a ``$( ... )`` that begins here."""
    depth = 0
    for place in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if text[place] == ")" and not depth:
            return place + 1
    raise NotPlayed


class _Script:
    """A script on its way. ``status`` is that of the last command."""

    def __init__(
        self, tokens: list[str], variables: Mapping[str, str], files: Mapping[str, str] | None
    ) -> None:
        self._tokens, self._at, self._steps = tokens, 0, 0
        self._variables = variables
        self._can_read = files is not None
        self._files = dict(files or {})
        self._output = ""
        self._history: list[tuple[float, Mapping[str, str]]] = [(0.0, self._files)]
        self.seconds, self.status = 0.0, 0
        self._commands: dict[str, Callable[[list[str]], int]] = {
            ":": lambda words: 0,
            "true": lambda words: 0,
            "false": lambda words: 1,
            "echo": self._print,
            "printf": self._print,
            "exit": self._exit,
            "sleep": self._sleep,
            "touch": self._touch,
            "rm": self._remove,
            "cat": self._show,
            "test": self._test,
            "[": self._test,
            "[[": self._test,
        }

    def outcome(self) -> Outcome:
        """Return what came of it so far."""
        history = tuple(self._history)
        return Outcome(self.seconds, self.status & 255, self._files, self._output, history)

    def lists(self, until: frozenset[str], *, live: bool = True) -> str:
        """Go through lists of commands up to one of these words; return it, empty at the end."""
        join = ";"
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            if token in _SEPARATORS:
                join = token if token in ("&&", "||") else ";"
                self._at += 1
                continue
            if token in _ENDS:
                if token not in until:
                    raise NotPlayed
                self._at += 1
                return token
            wanted = join == ";" or (join == "&&") == (self.status == 0)
            self._step(live=live and wanted)
            join = ";"
        if until:
            raise NotPlayed
        return ""

    def _step(self, *, live: bool) -> None:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise NotPlayed
        if self._tokens[self._at] == "if":
            self._at += 1
            self._branches(live=live)
            return
        words = []
        while self._at < len(self._tokens) and self._tokens[self._at] not in _SEPARATORS:
            words.append(self._tokens[self._at])
            self._at += 1
        if live:
            self.command([self._expanded(one) for one in words])

    def _branches(self, *, live: bool) -> None:
        done = False
        while True:
            if self.lists(frozenset({"then"}), live=live and not done) != "then":
                raise NotPlayed
            taken = live and not done and self.status == 0
            end = self.lists(frozenset({"elif", "else", "fi"}), live=taken)
            done = done or taken
            if end == "else":
                end = self.lists(frozenset({"fi"}), live=live and not done)
                return
            if end == "fi":
                if live and not done:
                    self.status = 0
                return

    def command(self, words: list[str]) -> None:
        """Play one command."""
        name = words[0].rpartition("/")[2] or words[0]
        found = self._commands.get(name)
        if found is None:
            raise NotPlayed
        self.status = found([name, *words[1:]])

    def _print(self, words: list[str]) -> int:
        said = words[1:]
        kept = said[: next((n for n, word in enumerate(said) if word.startswith(">")), len(said))]
        is_open = kept[:1] == ["-n"] or words[0] == "printf"
        text = " ".join(kept[1:] if kept[:1] == ["-n"] else kept)
        return self._write(said[len(kept) :], text if is_open else f"{text}\n")

    def _write(self, redirection: list[str], text: str) -> int:
        """Write a text to where a redirection says, or to the output if there is none."""
        if not redirection:
            self._output = (self._output + text)[-_LONGEST_TEXT:]
            return 0
        path = "".join(redirection).lstrip(">")
        if not path or len(redirection) > 2:
            raise NotPlayed
        before = self._files.get(path, "") if redirection[0].startswith(">>") else ""
        self._change({path: (before + text)[-_LONGEST_TEXT:]})
        return 0

    def _change(self, new: Mapping[str, str], gone: Collection[str] = ()) -> None:
        """Note which files there are from this moment on."""
        known = {path: text for path, text in self._files.items() if path not in gone}
        self._files = {**known, **new}
        if len(self._files) > _MOST_FILES:  # each moment keeps all of them
            raise NotPlayed
        self._history.append((self.seconds, self._files))

    def _remove(self, words: list[str]) -> int:
        forced = any(word.startswith("-") and "f" in word for word in words[1:])
        paths = [word for word in words[1:] if not word.startswith("-")]
        known = [path for path in paths if path in self._files]
        self._change({}, known)
        return 0 if forced or len(known) == len(paths) else 1

    def _show(self, words: list[str]) -> int:
        is_plain = len(words) > 1 and not any(word.startswith((">", "-")) for word in words[1:])
        if not is_plain or not self._can_read:
            raise NotPlayed
        known = [path for path in words[1:] if path in self._files]
        self._write([], "".join(self._files[path] for path in known))
        return 0 if len(known) == len(words) - 1 else 1

    def _exit(self, words: list[str]) -> int:
        self.status = int(words[1]) if len(words) > 1 else self.status
        raise _Exit

    def _sleep(self, words: list[str]) -> int:
        for word in words[1:]:
            number = word.rstrip("smhd")
            self.seconds += float(number) * _SUFFIXES[word[len(number) :]]
        if not 0 <= self.seconds < 1e9:
            raise NotPlayed
        return 0

    def _touch(self, words: list[str]) -> int:
        named = [word for word in words[1:] if not word.startswith("-")]
        self._change({path: self._files.get(path, "") for path in named})
        return 0

    def _test(self, words: list[str]) -> int:
        closing = {"[": "]", "[[": "]]"}.get(words[0])
        asked = words[1:]
        if closing is not None:
            if asked[-1:] != [closing]:
                raise NotPlayed
            asked = asked[:-1]
        if asked[:1] == ["!"]:
            return int(self._holds(asked[1:]))
        return int(not self._holds(asked))

    def _holds(self, asked: list[str]) -> bool:
        if len(asked) == 2 and asked[0] in ("-e", "-f", "-r", "-s"):
            return asked[1] in self._files
        if len(asked) == 2 and asked[0] in ("-n", "-z"):
            return bool(asked[1]) == (asked[0] == "-n")
        if len(asked) == 1:
            return bool(asked[0])
        if len(asked) != 3:
            raise NotPlayed
        left, how, right = asked
        if how in ("=", "==", "!="):
            return (left == right) == (how != "!=")
        one, other = int(left), int(right)
        answers = {
            "-eq": one == other, "-ne": one != other, "-lt": one < other, "-le": one <= other,
            "-gt": one > other, "-ge": one >= other,
        }  # fmt: skip
        if how not in answers:
            raise NotPlayed
        return answers[how]

    # Words ----------------------------------------------------------------------------------------

    def _expanded(self, word: str) -> str:
        """Return a word without its quotes, with what variables and ``$( )`` stand for."""
        result, at = "", 0
        while at < len(word):
            if word[at] == "'":
                end = word.index("'", at + 1)
                result += word[at + 1 : end]
                at = end + 1
            elif word[at] == '"':
                end = word.index('"', at + 1)
                result += self._expanded_inside(word[at + 1 : end])
                at = end + 1
            else:
                end = at
                while end < len(word) and word[end] not in "\"'":
                    end = _end_of_substitution(word, end) if word.startswith("$(", end) else end + 1
                result += self._expanded_inside(word[at:end])
                at = end
        return result

    def _expanded_inside(self, text: str) -> str:
        result, at = "", 0
        while at < len(text):
            if text.startswith("$(", at):
                end = _end_of_substitution(text, at)
                result += self._substituted(text[at:end])
                at = end
            elif text[at] == "$":
                match = _NAME.match(text, at)
                if match is None:
                    raise NotPlayed
                result += self._variable(match.group(1) or match.group(2))
                at = match.end()
            elif text[at] in "`*?\\":
                raise NotPlayed
            else:
                result += text[at]
                at += 1
        return result

    def _variable(self, name: str) -> str:
        if name not in self._variables:
            raise NotPlayed
        return self._variables[name]

    def _substituted(self, text: str) -> str:
        if text.startswith("$((") and text.endswith("))"):
            inside = _NAME.sub(lambda one: self._variable(one[1] or one[2]), text[3:-2])
            return self._calculated(inside)
        words = [self._expanded(one) for one in text[2:-1].split()]
        if words[:1] != ["expr"]:
            raise NotPlayed
        return self._calculated(" ".join(words[1:]))

    def _calculated(self, text: str) -> str:
        match = _ARITHMETIC.fullmatch(text)
        if match is None:
            raise NotPlayed
        left, how, right = match.groups()
        one, other = int(left), int(right or 0)
        if not how:
            return str(one)
        if how in "/%":
            whole = abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1)
            return str(whole if how == "/" else one - whole * other)
        return str({"+": one + other, "-": one - other, "*": one * other}[how])
