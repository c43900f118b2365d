// What the page says, in English. Every name is in words.ko.js too; a test compares them.

export const english = {
  skip: "Skip to what is shown",
  footer: "Everything here is computed by the server that sent this page. Nothing is sent anywhere else.",

  // The frame of the page
  link: "Copy link", linkCopied: "Link copied", linkInBar: "The link is in the address bar",
  savePicture: "PNG", saveNumbers: "JSON", dark: "Dark", light: "Light", help: "Five-minute tour",
  imageSide: "Image and answer", lookSide: "What happens inside", views: "Views",
  parameters: "{n} parameters", factsShape: "{layers} layers of {heads} heads", factsClasses: "{n} classes",

  // The server
  gone: "The server does not answer. Reconnecting …",
  busy: "The server is busy. Trying again …",
  loading: "The model is being loaded …",
  tokenTitle: "This server asks for a token", tokenWanted: "The one who started the server has it.",
  tokenWrong: "That token was not accepted. Please try again.", tokenField: "Token", tokenSend: "Continue",

  // Getting an image in
  choose: "Choose an image", paste: "Paste", camera: "Camera", draw: "Draw", dropHint: "or drop one anywhere, or press Ctrl+V",
  takePhoto: "Take the photo", close: "Close", noCamera: "There is no camera, or it was not allowed.",
  nothingToPaste: "There is no image to paste.", pasted: "pasted image", photo: "photo", drawing: "drawing",
  shrunk: "This image was larger than the server takes. It was shrunk here from {from} to {to} pixels.",
  padLabel: "Pad to draw on with mouse, pen or finger. Examples can be chosen with the buttons below.",
  clear: "Clear", undo: "Undo", forExample: "Try", exampleOf: "Draw a {name} for me", pen: "Pen {n}",
  emptyGlass: "Give it an image, and this window shows how the model sees it.",
  emptySecond: "Choose or drop a second image here.", reading: "Looking …",

  // The window
  glassLabel: "{name}, cut into patches. Arrow keys move from patch to patch, Enter pins one, Escape lets go, Page Up and Page Down change the layer.",
  glassCover: "{name}, cut into patches. Arrow keys move from patch to patch, Enter covers or uncovers one.",
  classToken: "class token", allPatches: "all patches together", register: "register {n}",
  patchAt: "token {n} (row {row}, column {column})", classNumber: "class {index}",
  looksMost: "{token}: strongest at {other}, {share} %",

  // The answer
  answer: "What it sees", answerCovered: "What it sees now, and before",
  frames: "The file has {n} frames; the first one is answered.",
  tellAnswer: "Answer: {name}, {share}", tellCovered: "With patches covered: {name}, {share}",

  // Tabs
  tab_patches: "Patches", tab_positions: "Positions", tab_attention: "Attention", tab_distance: "Distance",
  tab_rollout: "Rollout", tab_lens: "Layers", tab_cover: "Cover", tab_compare: "Compare", tab_equations: "Equations",
  leftOut: "Not shown for this model: {parts}.",
  noAttention: "It is a convolutional network (BiT), which has no attention.",
  noTable: "Its positions are not a table that can be compared.",
  exportedFile: "An exported file gives answers only; serve the model folder to look inside.",
  needsImage: "Choose or draw an image first.", asTable: "The numbers as a table",
  rowN: "row {n}", columnN: "column {n}", layerN: "layer {n}", headN: "head {n}",

  // Patches
  title_patches: "An image is a sentence of patches",
  lead_patches: "The model never sees the image as a whole. It cuts {width} × {height} pixels into {n} patches of {w} × {h}, and turns each patch into a token: a list of {dim} numbers. Point at a patch to see what is in it.",
  title_pixels: "What the model reads",
  lead_pixels: "Your image, fitted to {width} × {height} pixels. This is all that the model gets to see.",
  showNumbers: "Show the number of each token",
  patchNumbers: "This is {name}: {h} × {w} pixels × {channels} channels = {count} numbers. One multiplication with the matrix E makes {dim} numbers out of them.",
  patchArea: "This is {name}: {h} × {w} pixels of the image.",
  title_filters: "The patterns it looks for",
  lead_filters: "What the learned matrix E responds to, the most important patterns first. Trained models find edges, colours and waves; an untrained one shows noise.",
  filtersNote: "The first {n} principal components of {count} filters; together they explain {share} of their variance.",
  filterN: "Filter {n}, {share} of the variance",

  // Positions
  title_positions: "How it knows where a patch was",
  lead_positions: "A list of tokens has no up or down. So a learned position is added to every token. Point at a patch: amber patches have a position like it, blue ones the opposite. Neighbours, rows and columns appear, although nobody told the model that the image is flat.",
  similarTo: "how much other positions are like {name}",
  tilesLabel: "A small map for every patch: how much all other positions are like it", tilesCaption: "All patches at once: a tile for each",

  // Attention
  title_attention: "Every patch asks all the others",
  lead_attention: "In each of {layers} layers, {heads} heads decide for every token how much it takes from every other. Point at a patch to see where it looks; click to pin it.",
  layer: "Layer", head: "Head", mix: "Heat map", layerOf: "{n}  (0 to {last})", headOf: "{n}  (0 to {last})", meanHead: "mean of all heads",
  classTokenButton: "Class token", allPatchesButton: "All patches together",
  whereLooks: "where {token} looks · layer {layer}, {head}",
  looksMostAt: "It looks most at", toToken: "{share} of it goes to the {name}",
  allHeads: "All layers and heads", allHeadsLead: "How the answer's token looks at the image in every head. Choose one to see it large. Each small map has its own scale.",
  headsCaption: "layers across, heads downwards", layerHead: "Layer {layer}, head {head}",
  notProof: "Attention shows where information flows, not why the model decides. To test a suspicion, cover the patch and see whether the answer changes.",

  // Rollout
  title_rollout: "What the answer was made from",
  lead_rollout: "Attention followed back through all {layers} layers: bright patches contributed most to what the answer is read from.",
  rolloutWords: "share of each patch in what the head reads",
  rolloutHow: "Heads are averaged, the residual connection counts as looking at oneself, and the layers are multiplied (Abnar and Zuidema, 2020; Figure 6 of the paper).",

  // Layers
  title_lens: "When does it make up its mind?",
  lead_lens: "The same head reads the tokens after every layer, as if the network ended there. Early rows are guesses; watch where the final answer takes over.",
  afterBlocks: "after layers", guess: "guess {n}",
  lensSettled: "“{name}” comes first after {n} of {depth} layers, and stays.", lensLast: "Only after the last layer does “{name}” come first.", lensAlways: "“{name}” comes first from the start.",
  lensNote: "The head was trained for the last row only, so the early rows are hints.",

  // Distance
  title_distance: "How far do heads look?",
  lead_distance: "Each dot is a head: how many pixels away the patches are that it connects, in this image. Low dots look nearby, as convolutions do; high dots look across the whole image. Choose a dot to select that head.",
  distanceLabel: "Mean attention distance of every head by layer; the numbers are in the table below", pixelsAway: "pixels", evenLine: "looking everywhere alike",
  distanceDot: "layer {layer}, head {head}: {pixels} pixels", distanceSaid: "In layer {layer} the heads look {least} to {most} pixels away.",
  distanceNote: "Figure 7 (right) of the paper, for one image. The line joins the means of the layers.",

  // Cover
  title_cover: "Does it really need this patch?",
  lead_cover: "Click patches in the window, or drag over them, to paint them grey. The answer is computed again at once, beside the one before.",
  coverSeen: "Cover the 10 % it looks at most", coverRandom: "Cover 10 % at random", uncover: "Uncover all",
  nothingCovered: "Nothing is covered.", veryLittle: "almost nothing",
  coverSaid: "Covered: {n}. “{name}” goes from {before} to {after}.",
  coverTurned: "Covered: {n}. “{name}” goes from {before} to {after}, and now it says “{other}”.",
  coverHow: "Covered patches get the mean colour, which is 0 after normalisation.",
  coverTry: "Try", coverTry1: "Cover the object: does the answer fall?", coverTry2: "Cover only the background: does it matter? Then the model uses it.",
  coverTry3: "Cover what it looks at most, then as much at random: which hurts more?",

  // Compare
  title_compare: "Two images, one way of looking",
  lead_compare: "A second image beside the first, with the same layer, head and patch. Point at a patch in either.",
  chooseSecond: "Choose the second image", copyFirst: "Take the first one", compareBy: "Compare by", class: "class",
  alike: "The features that the head reads point in similar directions: cosine {cosine} (1 means the same).",

  // Equations
  title_equations: "The whole model in four equations",
  lead_equations: "Follow one token through the paper's equations (1) to (4), with the shapes of your model. Point at a patch to follow that one.",
  steps: "Steps", stepN: "Step {n}: {name}", back: "Back", next: "Next", becomes: "becomes", inCode: "In the code: {file}",
  step_cut: "Cut the image into patches", step_project: "Make each patch a token", step_class: "Put a class token in front", step_noClass: "Put registers in front",
  step_position: "Add where it was", step_heads: "Let tokens look at each other", step_residual: "Add what was found", step_mlp: "Let every token think", step_read: "Read the result", step_answer: "Answer",
  words_cut: "Height × width × channels become {n} rows, one per patch of {h} × {w} pixels.",
  words_cut_hybrid: "A ResNet turns the image into a feature map first; its cells are the patches. Each stands for {h} × {w} pixels.",
  words_project: "Every row is multiplied with the same learned matrix E. The result is a token of {dim} numbers.",
  words_class: "A learned token that belongs to no patch goes first. It will collect what the answer needs.",
  words_noClass: "Learned tokens that belong to no patch go first, as room to think.",
  words_position: "A learned row is added to every token, so that the model can tell places apart.",
  words_heads: "Every token makes a question, a key and a value of {headDim} numbers, in each of {heads} heads. How well questions fit keys says how much each token takes from every other: {tokens} × {tokens} shares per head. Each row sums to 1.",
  words_residual: "What was found is added to what the token was before. Nothing is thrown away.",
  words_mlp: "Each token goes by itself through {mlp} hidden numbers and back to {dim}. Equations (2) and (3) together are one layer; there are {layers}.",
  words_read_token: "After {layers} layers only the class token is read.",
  words_read_mean: "After {layers} layers the mean of all patch tokens is read; this model has no class token.",
  words_read_map: "After {layers} layers a small attention decides how much of each token is read.",
  words_answer: "One more matrix gives a number per class, and from them come the probabilities.",
  stepNeedsImage: "Choose or draw an image to follow one of its tokens.", yourToken: "You follow {name}.",
  itself: "itself",
  yourLook: "In layer {layer}, {name} looks most at {other}: {share}.",
  yourBlock: "In your image, layer {layer} takes the best guess from “{before}” ({p}) to “{after}” ({q}).",
  yourAnswer: "In your image: “{name}”, {share}.",

  // The tour
  tour: "Tour", tourPlace: "Step {n} of {of}", done: "Done", keys: "Keys",
  keysWords: "Tab moves between controls. In the window: arrow keys move from patch to patch, Enter pins or covers, Escape goes back to the answer's token, Page Up and Page Down change the layer. In the tabs: left and right.",
  tour_patch: "A patch is a word",
  tour_patch_words: "A language model reads words. A Vision Transformer reads patches: small squares of the image, in rows, as one reads a page. It has no other way to see.",
  tour_patch_try: "Draw or choose an image, then point at a patch: its pixels appear, enlarged, beside the window.",
  tour_token: "A token is a patch as numbers",
  tour_token_words: "Each patch becomes a list of numbers, its token, and is told where in the image it was. From here on there is no image any more, only a list of tokens.",
  tour_token_try: "Press Next in the equations to follow a token. The shapes are those of your model.",
  tour_attention: "Attention: tokens ask each other",
  tour_attention_words: "A patch of an ear means little alone. In every layer each token looks at all others and takes from them what it needs. A head is one way of looking; several look at once.",
  tour_attention_try: "Point at different patches. Then move the layer: early heads often look nearby, late ones at the whole.",
  tour_layers: "Layer by layer, an answer",
  tour_layers_words: "No single layer knows the answer. Each adds a little to every token, and at the end one list of numbers is turned into probabilities.",
  tour_layers_try: "Read the table from top to bottom: where does the final answer take over?",
  tour_proof: "Attention is not proof",
  tour_proof_words: "That a model looks at something does not mean that it decides by it. An untrained model has beautiful maps too. The honest test is to take the thing away.",
  tour_proof_try: "Cover what it looks at most, then as much at random, and compare what the answer loses.",
};
