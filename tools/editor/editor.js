// What api/static/console/editor.js imports, for one file that browsers load: `make editor`.
export { EditorView, drawSelection, highlightActiveLine, keymap, lineNumbers, placeholder } from "@codemirror/view";
export { EditorState } from "@codemirror/state";
export { HighlightStyle, bracketMatching, foldGutter, foldKeymap, forceParsing, indentOnInput, indentUnit, syntaxHighlighting, syntaxTree } from "@codemirror/language";
export { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
export { highlightSelectionMatches, searchKeymap } from "@codemirror/search";
export { lintGutter, lintKeymap, setDiagnostics } from "@codemirror/lint";
export { yaml } from "@codemirror/lang-yaml";
export { tags } from "@lezer/highlight";
