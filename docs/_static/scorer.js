// Order of search results: the user guide first, the changelog last.
var Scorer = {
  score: ([docname, title, anchor, descr, score]) =>
    score + (/^(how_to|get_started|models)/.test(docname) ? 30 : docname === "changelog" ? -30 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
