"""Keys with every kind of character that a client or server ever escaped twice or not at all."""

AWKWARD_KEYS = ["with space.txt", "plus+sign", "per%cent", "100%25", "a//b", "up/../x", "dir/./y",
                "grüße/世界.txt", "q?a=b&c#d", "semi;colon,comma", "tilde~(x)!*'", "📦"]
# Programs that think in file names cannot name these.
NOT_FOR_FILES = {"a//b", "up/../x", "dir/./y"}
