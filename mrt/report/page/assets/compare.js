// Two runs side by side.

if ($("all")) {
  sortable($("all"));
  searchable($("find"), $("all"));
}
fold($("rest"), ".falls .more", ["show", "hide"]);
themed($("theme"));
drawn(() => {
  if ($("sqnr")) lineChart($("sqnr"), {
    lines: data.lines, labels: data.labels, unit: "dB", most: 100, chosen: null, tell: (i) => data.tell[i], choose: null,
    label: "Cumulative SQNR of each layer in dB, of both runs; the table of all layers holds the numbers.",
  });
});
