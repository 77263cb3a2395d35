"""Simulates small shell scripts: how long they run, how they exit, the files they leave.

Enough of ``sh`` for the commands with which tests of workloads decide how their containers end:
lists, ``if``, loops, functions, ``test``, ``expr``, arithmetic, variables, files that are written,
read and removed, ``sleep`` in the background, and ``trap`` for SIGTERM. Nothing is executed, and a
script with anything else in it raises ``NotPlayed``.
"""

import math
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Final

import msgspec

_MOST_STEPS: Final = 1000
_LONGEST_TEXT: Final = 10_000
_MOST_FILES: Final = 100
_TOKEN: Final = re.compile(r"[ \t\r]+|\\\n|(\n|;|&&|\|\||&(?=[\s;]|$))|#[^\n]*")
_NAME: Final = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_ARITHMETIC: Final = re.compile(r"\s*(-?\d+)\s*(?:([-+*/%])\s*(-?\d+)\s*)?")
_ENDS: Final = frozenset({"then", "elif", "else", "fi", "do", "done"})
_SEPARATORS: Final = frozenset({"\n", ";", "&&", "||", "&"})
_TERM: Final = ("TERM", "SIGTERM", "15")
_AT_EXIT: Final = ("EXIT", "0")
_ROUNDS: Final = 3
"""A loop that changes nothing in this many rounds goes on for ever."""
_BETWEEN: Final = " \t\r\n;"
"""Characters that end a word; to a shell other spaces, such as U+00A0, are letters."""
_KILLED: Final = 137
_SUFFIXES: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class NotPlayed(Exception):
    """A script contains a command or syntax that cannot be simulated."""


class Pause(msgspec.Struct, frozen=True):
    """A script waits from one second to another; ``is_deaf``: it handles a signal only afterwards.

    ``period``: it repeats a wait of this length for ever.
    """

    begin: float
    end: float
    is_deaf: bool = True
    period: float = 0.0


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of a script.

    ``seconds`` is infinite for one that never ends. ``files`` are the files at the end, with their
    content, and ``output`` is its other output. ``history`` has the seconds at which files changed,
    with all files, and ``traps`` the changes of the trap for SIGTERM: commands, ``None`` for no
    trap. ``functions`` are those that it defined, ``variables`` its environment.
    """

    seconds: float
    exit_code: int
    files: Mapping[str, str] = {}
    output: str = ""
    history: tuple[tuple[float, Mapping[str, str]], ...] = ()
    traps: tuple[tuple[float, str | None], ...] = ()
    pauses: tuple[Pause, ...] = ()
    functions: Mapping[str, list[str]] = {}
    variables: Mapping[str, str] = {}


class _Exit(Exception):
    """The script exits."""


class _Break(Exception):
    """The innermost loop ends."""


class _ForEver(Exception):
    """The script never continues after this command."""


def play(
    text: str, variables: Mapping[str, str], files: Mapping[str, str] | None = None
) -> Outcome:
    """Return the outcome of a script that begins with these variables and these files.

    ``files``: ``None`` if their content is unknown.

    Raises:
        NotPlayed: it cannot be simulated.
    """
    if len(text) > _LONGEST_TEXT:
        raise NotPlayed
    try:
        script = _Script(_tokens(text), variables, files)
        script.play()
    except (ValueError, LookupError, RecursionError, ZeroDivisionError, _Break) as error:
        raise NotPlayed from error
    return script.outcome()


def stopped(found: Outcome, at: float) -> tuple[float, int] | None:
    """Return after how many seconds a script ends that gets SIGTERM at ``at``, and its exit code.

    Infinite and 137 for one that goes on until it is killed; ``None`` if it has no trap, or the
    trap's commands cannot be simulated. A shell handles a signal when the command that it runs has
    ended, and at once in ``wait``.
    """
    action = next((one for since, one in reversed(found.traps) if since <= at), None)
    if action is None:
        return None
    heeded = at
    for one in found.pauses:
        if one.is_deaf and one.begin <= at < one.end:
            heeded = one.end
            if one.period:
                heeded = one.begin + math.ceil((at - one.begin) / one.period) * one.period
    files = next((files for since, files in reversed(found.history) if since <= heeded), {})
    try:
        script = _Script(_tokens(action), found.variables, files, found.functions)
        has_ended = script.play()
    except (ValueError, LookupError, RecursionError, ZeroDivisionError, _Break, NotPlayed):
        return None
    after = heeded - at + script.seconds
    if has_ended:
        return after, script.status & 255
    if math.isinf(found.seconds) or math.isinf(after):
        return math.inf, _KILLED
    return max(after, found.seconds - at + script.seconds), found.exit_code


def run(words: list[str], variables: Mapping[str, str], files: Mapping[str, str] | None) -> Outcome:
    """Return the outcome of one command, given as words without quotes and variables.

    Raises:
        NotPlayed: it cannot be simulated.
    """
    script = _Script([], variables, files)
    try:
        with suppress(_Exit, _ForEver):
            script.command(words)
    except (ValueError, LookupError) as error:
        raise NotPlayed from error
    return script.outcome()


def _tokens(text: str) -> list[str]:
    """Return the separators and words of a script, with their quotes and ``$( )``."""
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
    """Return the position after the ``$( ... )`` that begins at ``at``."""
    depth = 0
    for place in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if text[place] == ")" and not depth:
            return place + 1
    raise NotPlayed


class _Script:
    """A script in execution. ``status`` is the exit code of the last command."""

    def __init__(
        self,
        tokens: list[str],
        variables: Mapping[str, str],
        files: Mapping[str, str] | None,
        functions: Mapping[str, list[str]] | None = None,
    ) -> None:
        self._tokens, self._at, self._steps = tokens, 0, 0
        self._variables = variables
        self._can_read = files is not None
        self._files = dict(files or {})
        self._output = ""
        self._history: list[tuple[float, Mapping[str, str]]] = [(0.0, self._files)]
        self._traps: list[tuple[float, str | None]] = []
        self._pauses: list[Pause] = []
        self._functions = dict(functions or {})
        self._at_exit = ""
        self._in_background = 0.0  # until when commands in the background run
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
            "break": self._break,
            "trap": self._trap,
            "wait": self._wait,
        }

    def play(self) -> bool:
        """Simulate the script to its end; return whether it called ``exit``.

        Raises:
            NotPlayed: it cannot be simulated.
        """
        has_ended = False
        try:
            if self.lists(frozenset()):
                raise NotPlayed
        except _Exit:
            has_ended = True
        except _ForEver:
            return False
        if self._at_exit:
            status, self._tokens, self._at = self.status, _tokens(self._at_exit), 0
            try:
                self.lists(frozenset())
                self.status = status
            except _Exit:
                has_ended = True
            except _ForEver:
                return False
        return has_ended

    def outcome(self) -> Outcome:
        """Return the outcome so far."""
        history = tuple(self._history)
        return Outcome(
            self.seconds,
            self.status & 255,
            self._files,
            self._output,
            history,
            tuple(self._traps),
            tuple(self._pauses),
            self._functions,
            self._variables,
        )

    def lists(self, until: frozenset[str], *, live: bool = True) -> str:
        """Simulate lists of commands up to one of these words; return it, empty at the end."""
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
            is_run = join == ";" or (join == "&&") == (self.status == 0)
            self._step(live=live and is_run)
            join = ";"
        if until:
            raise NotPlayed
        return ""

    def _step(self, *, live: bool) -> None:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise NotPlayed
        first = self._tokens[self._at]
        if first == "if":
            self._at += 1
            self._branches(live=live)
            return
        if first in ("while", "until"):
            self._at += 1
            self._loop(first == "while", live=live)
            return
        if first.endswith("()") and len(first) > 2:
            self._functions[first[:-2]] = self._body()
            return
        words = []
        while self._at < len(self._tokens) and self._tokens[self._at] not in _SEPARATORS:
            words.append(self._tokens[self._at])
            self._at += 1
        is_behind = self._at < len(self._tokens) and self._tokens[self._at] == "&"
        if live and is_behind:
            self._begin_in_background([self._expanded(one) for one in words])
        elif live:
            self.command([self._expanded(one) for one in words])

    def _body(self) -> list[str]:
        """Return the tokens of the body of the function defined here, and move behind it."""
        self._at += 1
        while self._tokens[self._at] == "\n":
            self._at += 1
        if self._tokens[self._at] != "{":
            raise NotPlayed
        begin, depth = self._at + 1, 0
        while True:
            depth += {"{": 1, "}": -1}.get(self._tokens[self._at], 0)
            self._at += 1
            if not depth:
                return self._tokens[begin : self._at - 1]

    def _loop(self, while_: bool, *, live: bool) -> None:  # noqa: FBT001  # of two words one
        begin = self._at
        rounds: list[tuple[float, Mapping[str, str]]] = []
        while True:
            self._at = begin
            if self.lists(frozenset({"do"}), live=live) != "do":
                raise NotPlayed
            goes_on = live and (self.status == 0) == while_
            body = self._at
            try:
                self.lists(frozenset({"done"}), live=goes_on)
            except _Break:
                self._at, goes_on = body, False
                self.lists(frozenset({"done"}), live=False)
            if not goes_on:
                self.status = 0
                return
            rounds.append((self.seconds, self._files))
            before = rounds[-_ROUNDS:]
            if len(before) == _ROUNDS and all(files == self._files for _, files in before):
                self._go_on_for_ever(before[-1][0] - before[-2][0])

    def _go_on_for_ever(self, period: float) -> None:
        self._pauses.append(Pause(self.seconds, math.inf, period > 0, period))
        self.seconds = math.inf
        raise _ForEver

    def _begin_in_background(self, words: list[str]) -> None:
        if words[:1] != ["sleep"]:
            raise NotPlayed
        self._in_background = max(self._in_background, self.seconds + self._length(words))
        self.status = 0

    def _branches(self, *, live: bool) -> None:
        done = False
        while True:
            if self.lists(frozenset({"then"}), live=live and not done) != "then":
                raise NotPlayed
            is_run = live and not done and self.status == 0
            end = self.lists(frozenset({"elif", "else", "fi"}), live=is_run)
            done = done or is_run
            if end == "else":
                end = self.lists(frozenset({"fi"}), live=live and not done)
                return
            if end == "fi":
                if live and not done:
                    self.status = 0
                return

    def command(self, words: list[str]) -> None:
        """Simulate one command."""
        name = words[0].rpartition("/")[2] or words[0]
        if words[0] in self._functions:
            tokens, at = self._tokens, self._at
            self._tokens, self._at = self._functions[words[0]], 0
            self.lists(frozenset())
            self._tokens, self._at = tokens, at
            return
        found = self._commands.get(name)
        if found is None:
            raise NotPlayed
        self.status = found([name, *words[1:]])

    def _break(self, words: list[str]) -> int:
        if len(words) > 1:
            raise NotPlayed
        raise _Break

    def _trap(self, words: list[str]) -> int:
        signals = [one for one in words[2:] if one in _TERM]
        if len(words) < 3:
            raise NotPlayed
        action = None if words[1] == "-" else words[1]
        if signals:
            self._traps.append((self.seconds, action))
        if any(one in _AT_EXIT for one in words[2:]):
            self._at_exit = action or ""
        return 0

    def _wait(self, words: list[str]) -> int:
        if len(words) > 1:
            raise NotPlayed
        self._pause_until(max(self.seconds, self._in_background), is_deaf=False)
        return 0

    def _pause_until(self, end: float, *, is_deaf: bool = True) -> None:
        self._pauses.append(Pause(self.seconds, end, is_deaf))
        self.seconds = end
        if math.isinf(end):
            raise _ForEver

    def _print(self, words: list[str]) -> int:
        rest = words[1:]
        args = rest[: next((n for n, word in enumerate(rest) if word.startswith(">")), len(rest))]
        is_open = args[:1] == ["-n"] or words[0] == "printf"
        text = " ".join(args[1:] if args[:1] == ["-n"] else args)
        return self._write(rest[len(args) :], text if is_open else f"{text}\n")

    def _write(self, redirection: list[str], text: str) -> int:
        """Write a text to a redirection's file, or to the output if there is no redirection."""
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
        """Record new and removed files at the present second."""
        remaining = {path: text for path, text in self._files.items() if path not in gone}
        self._files = {**remaining, **new}
        if len(self._files) > _MOST_FILES:  # each moment keeps all of them
            raise NotPlayed
        self._history.append((self.seconds, self._files))

    def _remove(self, words: list[str]) -> int:
        forced = any(word.startswith("-") and "f" in word for word in words[1:])
        paths = [word for word in words[1:] if not word.startswith("-")]
        present = [path for path in paths if path in self._files]
        self._change({}, present)
        return 0 if forced or len(present) == len(paths) else 1

    def _show(self, words: list[str]) -> int:
        is_plain = len(words) > 1 and not any(word.startswith((">", "-")) for word in words[1:])
        if not is_plain or not self._can_read:
            raise NotPlayed
        present = [path for path in words[1:] if path in self._files]
        self._write([], "".join(self._files[path] for path in present))
        return 0 if len(present) == len(words) - 1 else 1

    def _exit(self, words: list[str]) -> int:
        self.status = int(words[1]) if len(words) > 1 else self.status
        raise _Exit

    def _sleep(self, words: list[str]) -> int:
        self._pause_until(self.seconds + self._length(words))
        return 0

    def _length(self, words: list[str]) -> float:
        """Return how many seconds ``sleep`` waits."""
        seconds = 0.0
        for word in words[1:]:
            if word in ("inf", "infinity"):
                return math.inf
            number = word.rstrip("smhd")
            seconds += float(number) * _SUFFIXES[word[len(number) :]]
        if not 0 <= seconds < 1e9:
            raise NotPlayed
        return seconds

    def _touch(self, words: list[str]) -> int:
        named = [word for word in words[1:] if not word.startswith("-")]
        self._change({path: self._files.get(path, "") for path in named})
        return 0

    def _test(self, words: list[str]) -> int:
        closing = {"[": "]", "[[": "]]"}.get(words[0])
        condition = words[1:]
        if closing is not None:
            if condition[-1:] != [closing]:
                raise NotPlayed
            condition = condition[:-1]
        if condition[:1] == ["!"]:
            return int(self._holds(condition[1:]))
        return int(not self._holds(condition))

    def _holds(self, condition: list[str]) -> bool:
        if len(condition) == 2 and condition[0] in ("-e", "-f", "-r", "-s"):
            return condition[1] in self._files
        if len(condition) == 2 and condition[0] in ("-n", "-z"):
            return bool(condition[1]) == (condition[0] == "-n")
        if len(condition) == 1:
            return bool(condition[0])
        if len(condition) != 3:
            raise NotPlayed
        left, how, right = condition
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
        """Return a word without quotes, with variables and ``$( )`` expanded."""
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
