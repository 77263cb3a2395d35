"""A comparison as one HTML file: figures, curves, differences; without external resources."""

from collections.abc import Callable, Sequence
from html import escape

from scheduling.scenarios import durations
from scheduling.scenarios.comparing import Comparison, Figure
from scheduling.scenarios.outcome import Outcome, Sample
from scheduling.scenarios.pictures import COLOURS, Points, legend, lines
from scheduling.scenarios.tables import shown

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 1180px;
  padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .8rem; text-align: right; border-bottom: 1px solid var(--line); }
td { white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } td.best { font-weight: 700; }
thead th { border-bottom-width: 2px; vertical-align: bottom; }
figure { margin: 0; padding: .6rem; background: var(--soft); border-radius: 8px; }
figcaption { font-weight: 600; margin-bottom: .3rem; }
.curves { display: grid; grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); gap: 1rem; }
svg text { font: 11px system-ui, sans-serif; fill: currentColor; }
svg .grid { stroke: var(--line); }
.legend span { margin-right: 1.4rem; white-space: nowrap; } .note { opacity: .75; }
.scroll { overflow-x: auto; max-height: 30rem; overflow-y: auto; }
"""


def page(title: str, about: Sequence[str], outcomes: Sequence[Outcome], found: Comparison) -> str:
    """Return the report as HTML.

    Args:
        title: the page's title.
        about: sentences about the script, under the title.
        outcomes: the outcome of each configuration.
        found: their differences.
    """
    figures = "".join(_figure(title, picture) for title, picture in pictures(outcomes))
    notes = "".join(f"<p class=note>{escape(text)}</p>" for text in about)
    parts = [
        (
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>"
            f"<h1>{escape(title)}</h1>{notes}"
        ),
        f"<h2>Figures</h2>{_figures(found)}",
        f"<h2>Over time</h2>{legend(found.titles)}<div class=curves>{figures}</div>",
        _warnings(outcomes),
        _differing_pods(found),
        _differing_nodes(found),
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _figures(found: Comparison) -> str:
    heads = "".join(
        f'<th scope=col><span style="color:{COLOURS[at % len(COLOURS)]}">&#9632;</span>'
        f" {escape(title)}</th>"
        for at, title in enumerate(found.titles)
    )
    rows = [f"<thead><tr><th scope=col></th>{heads}</tr></thead><tbody>"]
    for figure in found.figures:
        if any(figure.values) or figure.name in ("bound", "never bound"):
            cells = "".join(
                f"<td{' class=best' if _is_best(figure, value) else ''}>"
                f"{escape(shown(figure, value))}</td>"
                for value in figure.values
            )
            rows.append(f"<tr><th scope=row>{escape(figure.name)}</th>{cells}</tr>")
    if len(found.titles) > 1:
        first = escape(found.titles[0])
        for text, counts in (
            ("on another node", found.elsewhere),
            ("that wait longer", found.waited_longer),
            ("that wait less", found.waited_less),
        ):
            cells = "<td>-</td>" + "".join(f"<td>{count}</td>" for count in counts[1:])
            rows.append(f"<tr><th scope=row>pods {text} than under {first}</th>{cells}</tr>")
    return f"<div class=scroll style='max-height:none'><table>{''.join(rows)}</tbody></table></div>"


def _is_best(figure: Figure, value: float) -> bool:
    if not figure.better or len(set(figure.values)) < 2:
        return False
    return value == (min if figure.better == "less" else max)(figure.values)


def _percent(value: float) -> str:
    return f"{100 * value:.3g} %"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def pictures(outcomes: Sequence[Outcome]) -> list[tuple[str, str]]:
    """Return the curves of all outcomes, as (title, SVG)."""
    resources = sorted({name for one in outcomes for sample in one.samples for name in sample.used})
    charts: list[tuple[str, Callable[[Sample], float], Callable[[float], str]]] = [
        (f"{name} in use", lambda sample, name=name: sample.used.get(name, 0.0), _percent)  # type: ignore[misc]
        for name in resources
    ]
    measure = outcomes[0].measure
    charts += [
        (f"{measure} that is free but too fragmented to use", lambda s: s.fragmented, _percent),
        ("pods that wait", lambda s: float(s.pending), _count),
        ("nodes in use", lambda s: float(s.nodes_used), _count),
    ]
    found = []
    for title, read, form in charts:
        curves = [(one.title, [(s.at, read(s)) for s in one.samples]) for one in outcomes]
        found.append((title, lines(title, curves, form=form)))
    found.append(("share of pods bound, by time waited", _waits(outcomes)))
    return found


def _figure(title: str, picture: str) -> str:
    return f"<figure><figcaption>{escape(title)}</figcaption>{picture}</figure>"


def _waits(outcomes: Sequence[Outcome]) -> str:
    """Return a chart of the share of pods that waited at most a given time."""
    curves: list[tuple[str, Points]] = []
    for outcome in outcomes:
        came = [fate for fate in outcome.fates if not fate.has_fixed_node]
        waits = sorted(fate.waited for fate in came if fate.waited is not None)
        count = len(came) or 1
        every = max(len(waits) // 200, 1)
        points = [
            (max(wait, 1.0), (number + 1) / count)
            for number, wait in enumerate(waits)
            if number % every == 0 or number == len(waits) - 1
        ]
        curves.append((outcome.title, points))
    most = max([10.0, *(x for _, points in curves for x, _ in points)])
    curves = [
        (name, [(1.0, 0.0), *points, (most, points[-1][1] if points else 0.0)])
        for name, points in curves
    ]
    title = "share of the pods that was bound within this time"
    return lines(title, curves, form=_percent, logarithmic=True, across=durations.show)


def _warnings(outcomes: Sequence[Outcome]) -> str:
    texts = list(dict.fromkeys(text for one in outcomes for text in one.warnings))
    return "".join(f"<p class=note>{escape(text)}</p>" for text in texts)


def _differing_pods(found: Comparison) -> str:
    if not found.pods:
        return ""
    heads = "".join(f"<th scope=col colspan=3>{escape(title)}</th>" for title in found.titles)
    inner = "<th scope=col>node</th><th scope=col>waited</th><th scope=col>end</th>"
    rows = []
    for one in found.pods:
        cells = ""
        for node, waited, end in zip(one.nodes, one.waited, one.ends, strict=True):
            text = "never" if waited is None else durations.show(waited)
            cells += f"<td>{escape(node or '-')}</td><td>{text}</td><td>{escape(end)}</td>"
        rows.append(f"<tr><td>{escape(one.pod)}</td>{cells}</tr>")
    return (
        "<h2>Pods whose wait or end differs most</h2><div class=scroll><table><thead>"
        f"<tr><th scope=col rowspan=2>pod</th>{heads}</tr><tr>{inner * len(found.titles)}</tr>"
        f"</thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _differing_nodes(found: Comparison) -> str:
    if not found.nodes:
        return ""
    heads = "".join(f"<th scope=col>{escape(title)}</th>" for title in found.titles)
    rows = []
    for one in found.nodes:
        cells = "".join(f"<td>{count}</td>" for count in one.counts)
        rows.append(f"<tr><td>{escape(one.node)}</td>{cells}</tr>")
    return (
        "<h2>Nodes that were given another number of pods</h2><div class=scroll><table><thead>"
        f"<tr><th scope=col>node</th>{heads}</tr></thead><tbody>"
        f"{''.join(rows)}</tbody></table></div>"
    )
