// Python in colours, line by line. Strings over several lines are followed from line to line.

export interface Token {
  text: string;
  kind: "" | "word" | "string" | "comment" | "number" | "name" | "decorator";
}

const WORDS = new Set("and as assert async await break case class continue def del elif else except finally for from global if import in is lambda match nonlocal not or pass raise return try while with yield None True False".split(" "));
const TOKEN = /(#.*$)|((?:[rbfuRBFU]{0,2})(?:"""|'''))|((?:[rbfuRBFU]{0,2})(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'))|(@[\w.]+)|(\b\d[\w.]*)|([A-Za-z_]\w*)|(\s+|.)/g;

export function highlight(text: string): Token[][] {
  let quote = "";
  return text.split("\n").map((line) => {
    const tokens: Token[] = [];
    let rest = line;
    if (quote) {
      const end = rest.indexOf(quote);
      if (end < 0) return [{ text: line, kind: "string" }];
      tokens.push({ text: rest.slice(0, end + 3), kind: "string" });
      rest = rest.slice(end + 3);
      quote = "";
    }
    let isDefinition = false;
    TOKEN.lastIndex = 0;
    for (let found = TOKEN.exec(rest); found; found = TOKEN.exec(rest)) {
      const [all, comment, triple, string, decorator, number, name] = found;
      if (comment) tokens.push({ text: all, kind: "comment" });
      else if (triple) {
        const mark = triple.slice(-3);
        const end = rest.indexOf(mark, found.index + triple.length);
        if (end < 0) {
          tokens.push({ text: rest.slice(found.index), kind: "string" });
          quote = mark;
          break;
        }
        tokens.push({ text: rest.slice(found.index, end + 3), kind: "string" });
        TOKEN.lastIndex = end + 3;
      } else if (string) tokens.push({ text: all, kind: "string" });
      else if (decorator) tokens.push({ text: all, kind: "decorator" });
      else if (number) tokens.push({ text: all, kind: "number" });
      else if (name) {
        tokens.push({ text: all, kind: WORDS.has(name) ? "word" : isDefinition ? "name" : "" });
        isDefinition = name === "def" || name === "class";
      } else tokens.push({ text: all, kind: "" });
    }
    return tokens;
  });
}
