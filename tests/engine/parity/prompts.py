"""Thirty prompts of many kinds and lengths; some begin alike."""

SHARED = (
    "You are a careful librarian in a small town. You answer in short sentences, you never guess, "
    "and you always say where a book stands. The shelves go from A to Z along the north wall, maps "
    "are in the cellar, and newspapers older than a year are in the tower. "
)
"""Long enough for several blocks: prompts that begin with it share them."""

PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "def fibonacci(n):\n    ",
    "1, 2, 3, 5, 8, 13,",
    "Q: How many legs does a spider have?\nA:",
    "Water boils at",
    "import numpy as np\n\ndef softmax(x):\n",
    "The quick brown fox",
    "Dear Sir or Madam,\n\nI am writing to",
    "In 1969, Neil Armstrong",
    "Photosynthesis is the process by which",
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nWrite a haiku about rain.<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nList three fruits.<|im_end|>\n<|im_start|>assistant\n1.",
    "SELECT name, COUNT(*) FROM",
    "# Shopping list\n\n- milk\n- bread\n-",
    "Der schnelle braune Fuchs",
    "El perro corre por",
    "日本の首都は",
    "🙂 means happy, 😢 means",
    "x",
    "    ",
    "HTTP/1.1 200 OK\nContent-Type:",
    '{"name": "Ada", "age": 36, "skills": [',
    "The mitochondria is the powerhouse of the cell. " * 6 + "In other words,",
    "Chapter 1\n\n" + "It was raining. " * 30,
    SHARED + "Where is a map of the river?",
    SHARED + "Where are novels by Zola?",
    SHARED + "A child asks for a newspaper of 1950.",
    SHARED + SHARED + "Somebody asks twice. You say:",
]

NUM_TOKENS = 64
"""Tokens generated after each prompt; end tokens do not end it."""
