"""Wire languages that several devices speak: sessions of TL1, SCPI, command lines and HTTP."""
