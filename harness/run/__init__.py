"""One run of one scenario: from the file to the signed folder."""
