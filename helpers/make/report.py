"""The pages of `make run`: each executed notebook as HTML, and one table of how they went."""

import copy
import html
import os
from pathlib import Path

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
       color: #1a1a1a; background: #fff }
table { border-collapse: collapse; width: 100%; margin: 1rem 0 }
th, td { text-align: left; vertical-align: top; padding: .4rem .8rem .4rem 0;
         border-bottom: 1px solid #ddd }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
.ok { color: #17692b } .failed { color: #a4161a; font-weight: 600 }
pre { background: #f5f5f5; padding: .6rem .8rem; margin: .3rem 0; overflow-x: auto;
      white-space: pre-wrap; font-size: .85rem } .error pre + pre { background: #fdeeee }
dt { font-weight: 600 } dd { margin: 0 0 .4rem 0 }
"""
WIDGET = "application/vnd.jupyter.widget-view+json"


def write(path, text):
    """Write a page so that it is whole or as it was before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def notebook_html(notebook, title):
    """An executed notebook as one HTML page; where a widget was, its static figure."""
    from nbconvert import HTMLExporter  # takes a second to import

    page = copy.deepcopy(notebook)
    page.metadata.pop("widgets", None)
    for cell in page.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in map(_static, cell.outputs) if output]
    body, _ = HTMLExporter(embed_images=True).from_notebook_node(
        page, {"metadata": {"name": title}})
    return body


def _static(output):
    """An output as a page without a kernel can show it; None for a widget that is only live."""
    data = output.get("data", {})
    if WIDGET not in data:
        return output
    del data[WIDGET]
    return output if data.keys() - {"text/plain"} else None


def report_html(outcomes, machine, software, when):
    """The page: a row a notebook, what failed and where, and the machine that it ran on."""
    failed = sum(outcome.state != "ok" for outcome in outcomes)
    verdict = f"{failed} of {len(outcomes)} did not pass" if failed else "all passed"
    minutes = sum(outcome.seconds for outcome in outcomes) / 60
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>The course, run: {verdict}</title><style>{STYLE}</style></head><body>
<h1>The course, run</h1>
<p>{len(outcomes)} notebooks, <span class="{'failed' if failed else 'ok'}">{verdict}</span>,
{minutes:.1f} minutes, {when:%Y-%m-%d %H:%M} UTC.</p>
<table><tr><th>Notebook</th><th>Outcome</th><th class="number">Minutes</th>
<th class="number">Cells run</th><th>Executed copy</th></tr>
{"".join(map(_row, outcomes))}</table>
<h2>Machine and versions</h2>
<dl>{"".join(map(_fact, _facts(machine, software)))}</dl>
</body></html>
"""


def _row(outcome):
    kind = "ok" if outcome.state == "ok" else "failed"
    links = " ".join(f'<a href="executed/{html.escape(outcome.name)}.{end}">{text}</a>'
                     for end, text in (("html", "page"), ("ipynb", "notebook")))
    row = (f"<tr><td>{html.escape(outcome.name)}</td><td class='{kind}'>{outcome.state}</td>"
           f"<td class='number'>{outcome.seconds / 60:.1f}</td>"
           f"<td class='number'>{outcome.cells_run} of {outcome.cells}</td>"
           f"<td>{links if outcome.state != 'not run' else ''}</td></tr>\n")
    if not outcome.message:
        return row
    source = f"<pre>{html.escape(outcome.source)}</pre>" if outcome.source else ""
    where = f"Cell {outcome.cell}" if outcome.cell else "Outside the cells"
    return row + (f"<tr class='error'><td></td><td colspan='4'>{where}:{source}"
                  f"<pre>{html.escape(outcome.message)}</pre></td></tr>\n")


def _facts(machine, software):
    yield "Machine", f"{machine['id']}: {machine['cpu']}, {machine['cores']} cores, " \
                     f"{machine['memory_bytes'] / 2**30:.0f} GiB"
    yield "GPU", f"{machine['gpu']}, driver {machine['driver']}" if machine["gpu"] else "none"
    yield "System", f"{software['os']}, kernel {software['kernel']}, Python {software['python']}"
    yield "Packages", ", ".join(f"{name} {version or 'not installed'}"
                                for name, version in software["packages"].items())
    changed = " with changes" if software["changed"] else ""
    yield "Commit", f"{software['commit'] or 'not known'}{changed}"


def _fact(fact):
    return f"<dt>{html.escape(fact[0])}</dt><dd>{html.escape(fact[1])}</dd>\n"


def summary(outcomes):
    """The same table for a terminal, plain text."""
    wide = max(len(outcome.name) for outcome in outcomes)
    lines = [f"{'notebook':{wide}}  {'outcome':11}  minutes  cells run"]
    for outcome in outcomes:
        lines.append(f"{outcome.name:{wide}}  {outcome.state:11}  {outcome.seconds / 60:7.1f}  "
                     f"{outcome.cells_run} of {outcome.cells}")
        if outcome.message:
            where = f"cell {outcome.cell}" if outcome.cell else "outside the cells"
            lines += [f"    {where}: {line}" if number == 0 else f"      {line}"
                      for number, line in enumerate(outcome.message.splitlines()[:12])]
    return "\n".join(lines)


def write_report(folder, outcomes, machine, software, when):
    """Write report.html into the folder and return its path."""
    path = Path(folder) / "report.html"
    write(path, report_html(outcomes, machine, software, when))
    return path
