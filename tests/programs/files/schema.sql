CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price REAL);
INSERT INTO item (name, price) VALUES ('plough', 12.5), ('lathe', 230), ('loom', 99.9);
CREATE INDEX by_name ON item (name);
UPDATE item SET price = price * 2 WHERE name LIKE 'l%';
SELECT name, price FROM item ORDER BY price DESC;
