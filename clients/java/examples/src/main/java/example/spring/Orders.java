package example.spring;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.stereotype.Service;

/** The business code. */
@Service
public class Orders {
    private static final Logger log = LoggerFactory.getLogger(Orders.class);

    public void save(String id, String order) {
        log.info("{}: {}", id, order);
    }
}
