// YAML in an editor: CodeMirror in place of a textarea of a form, which keeps its name and the text.
// Fields that the server found wrong are marked at their lines. Tab leaves the editor, as it leaves
// any field. The editor stands in a shadow tree, because the page's policy lets no script add a
// style sheet to the page itself.

import {
  EditorState, EditorView, HighlightStyle, bracketMatching, defaultKeymap, drawSelection, foldGutter,
  foldKeymap, forceParsing, highlightActiveLine, highlightSelectionMatches, history, historyKeymap,
  indentOnInput, indentUnit, keymap, lineNumbers, lintGutter, lintKeymap, placeholder, searchKeymap,
  setDiagnostics, syntaxHighlighting, syntaxTree, tags, yaml,
} from "./vendor/codemirror-6.min.js";

const COLOURS = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--acc)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--ok)" },
  { tag: [tags.comment, tags.meta], color: "var(--mut)" },
  { tag: [tags.keyword, tags.typeName, tags.labelName], color: "var(--warn)" },
  { tag: tags.invalid, color: "var(--bad)" },
]);

const LOOKS = EditorView.theme({
  "&": { background: "var(--card)", color: "var(--fg)", border: "1px solid color-mix(in srgb, var(--mut) 60%, transparent)", borderRadius: "6px" },
  "&.cm-focused": { outline: "2px solid var(--acc)", outlineOffset: "1px" },
  ".cm-scroller": { font: '12px/1.5 ui-monospace, "DejaVu Sans Mono", monospace', maxHeight: "70vh", overflow: "auto" },
  ".cm-content": { caretColor: "var(--fg)" },
  ".cm-cursor": { borderLeftColor: "var(--fg)" },
  ".cm-gutters": { background: "var(--bg)", color: "var(--mut)", borderRight: "1px solid var(--line)", borderRadius: "6px 0 0 6px" },
  ".cm-activeLine": { background: "color-mix(in srgb, var(--tint) 60%, transparent)" },
  ".cm-activeLineGutter": { background: "var(--tint)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { background: "color-mix(in srgb, var(--acc) 30%, transparent)" },
  ".cm-panels, .cm-tooltip": { background: "var(--card)", color: "var(--fg)", borderColor: "var(--line)" },
  ".cm-panel input, .cm-panel button": { font: "inherit", color: "inherit", background: "var(--card)", backgroundImage: "none", border: "1px solid var(--mut)", borderRadius: "6px" },
  ".cm-placeholder": { color: "var(--mut)" },
});

// What is typed over several lines: the browser would write a style into the text, which the page's
// policy refuses.
const OVER_LINES = EditorView.domEventHandlers({
  beforeinput(event, view) {
    const { state } = view;
    const { from, to } = state.selection.main;
    if (event.inputType !== "insertText" || event.data === null || event.isComposing || state.doc.lineAt(from).to >= to) return false;
    view.dispatch(state.replaceSelection(event.data), { userEvent: "input.type", scrollIntoView: true });
    event.preventDefault();
    return true;
  },
});

/** Return the steps of a field's path: `spec.containers[0].image`, `metadata.labels[a/b]`. */
function steps(path) {
  return [...path.matchAll(/\[([^\]]*)\]|([^.[\]]+)/g)].map((found) => found[1] ?? found[2]);
}

function plain(text) {
  return /^(".*"|'.*')$/s.test(text) ? text.slice(1, -1) : text;
}

function children(node, ...names) {
  const found = [];
  for (let one = node.firstChild; one; one = one.nextSibling) if (names.includes(one.name)) found.push(one);
  return found;
}

/** Return where a field stands: its key, or the closest of those around it that is in the text. */
function place(state, path) {
  const documents = syntaxTree(state).topNode.getChildren("Document");
  if (documents.length > 1) return null; // a path does not say of which
  const inside = (one) => one && children(one, "BlockMapping", "FlowMapping", "BlockSequence", "FlowSequence")[0];
  let node = inside(documents[0]);
  let found = null;
  for (const step of steps(path)) {
    if (!node) break;
    let next;
    if (node.name.endsWith("Mapping")) {
      next = children(node, "Pair").find((pair) => {
        const key = pair.getChild("Key");
        return key && plain(state.sliceDoc(key.from, key.to)) === step;
      });
      if (!next) break;
      found = next.getChild("Key");
    } else {
      next = /^\d+$/.test(step) ? children(node, "Item")[Number(step)] : undefined;
      if (!next) break;
      found = { from: next.from, to: Math.min(next.to, state.doc.lineAt(next.from).to) };
    }
    node = inside(next);
  }
  return found;
}

/** Mark the problems that the page tells of where they are in the text. */
function mark(view, form) {
  const told = form.closest("section").querySelectorAll("#problems [data-field]");
  if (!told.length) return;
  forceParsing(view, view.state.doc.length, 500);
  const { state } = view;
  const found = [...told].map((one) => {
    const message = one.querySelector("span").textContent;
    const line = Number(/\bline (\d+)/.exec(message)?.[1] || 0);
    const where = !one.dataset.field && line && line <= state.doc.lines ? state.doc.line(line) : place(state, one.dataset.field);
    return where && { from: where.from, to: where.to, severity: "error", message };
  }).filter(Boolean).sort((one, other) => one.from - other.from);
  view.dispatch(setDiagnostics(state, found));
}

function edit(area) {
  const host = document.createElement("div");
  host.className = "editor";
  host.dataset.typed = "";
  const root = host.attachShadow({ mode: "open" });
  const [label] = area.labels;
  const says = { "aria-label": label.textContent };
  if (area.getAttribute("aria-invalid")) says["aria-invalid"] = "true";
  const view = new EditorView({
    root,
    parent: root,
    doc: area.value,
    extensions: [
      yaml(), EditorState.tabSize.of(2), indentUnit.of("  "), history(), lineNumbers(), foldGutter(), lintGutter(), drawSelection(),
      indentOnInput(), bracketMatching(), highlightActiveLine(), highlightSelectionMatches(), syntaxHighlighting(COLOURS), LOOKS, OVER_LINES,
      placeholder(area.placeholder), EditorView.lineWrapping,
      EditorView.theme({ ".cm-content, .cm-gutter": { minHeight: `${Math.min(area.rows, 24) * 18}px` } }),
      EditorView.contentAttributes.of(says),
      keymap.of([...defaultKeymap, ...historyKeymap, ...searchKeymap, ...foldKeymap, ...lintKeymap]),
      EditorView.updateListener.of((update) => {
        if (!update.docChanged) return;
        area.value = view.state.doc.toString();
        area.dispatchEvent(new Event("input", { bubbles: true }));
      }),
    ],
  });
  area.hidden = true;
  area.after(host);
  label.addEventListener("click", (event) => { event.preventDefault(); view.focus(); });
  area.form.addEventListener("reset", () => setTimeout(() => view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: area.value } })));
  mark(view, area.form);
}

document.querySelectorAll("textarea.code").forEach(edit);
