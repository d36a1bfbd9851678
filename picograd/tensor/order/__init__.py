"""What needs elements in order: sorts, ranks, searches, sets."""
